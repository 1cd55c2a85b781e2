# pool.py: one pool per worker process, opened before its first task and closed after its last
import os

from psycopg_pool import AsyncConnectionPool

from octop import Octop

octop = Octop()
# open=False: a web server that imports this module to enqueue opens nothing
pool = AsyncConnectionPool(os.environ.get("SHOP_DSN", ""), min_size=1, max_size=4, open=False)


@octop.on_worker_start
async def open_pool() -> None:
    await pool.open(wait=True, timeout=10)


@octop.on_worker_stop
async def close_pool() -> None:
    await pool.close()


@octop.task
async def count_orders() -> int:
    async with pool.connection() as connection:
        cursor = await connection.execute("SELECT count(*) FROM orders")
        row = await cursor.fetchone()
        return row[0] if row else 0
