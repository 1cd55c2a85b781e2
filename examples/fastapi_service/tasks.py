"""The task types of the shop."""

import os

from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from octop import Octop

octop = Octop()
engine = create_async_engine(os.environ.get("SHOP_URL", "postgresql+psycopg://"))


@octop.task(queue="mail", max_retries=5, timeout=30)
async def send_receipt(order_id: int) -> str:
    """Send the receipt of an order, once: a second start finds that it has been sent."""
    async with engine.begin() as connection:
        statement = text("UPDATE orders SET receipt_sent_at = now() WHERE id = :id AND receipt_sent_at IS NULL")
        done = await connection.execute(statement, {"id": order_id})
        return "sent" if done.rowcount else "sent before"
