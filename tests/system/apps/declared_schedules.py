"""An application that declares two schedules."""

from octop import Octop

octop = Octop()


@octop.schedule("0 9 * * MON-FRI", timezone="Asia/Kolkata", kwargs={"day": "{{slot.date}}"})
@octop.task
def report(day: str) -> None: ...


@octop.schedule("@every 90s", name="often")
@octop.task
def noop() -> None: ...
