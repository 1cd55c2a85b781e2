"""The mark `faults`: runs of the whole harness, so that they can be chosen (-m faults) or left out."""


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "faults: real workers and a real server under a plan of faults; a minute or more each"
    )
