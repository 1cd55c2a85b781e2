"""A web service that takes orders. An order and the task of its receipt are one transaction."""

from datetime import datetime

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, PositiveInt
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from tasks import engine, send_receipt

LIMIT = 1_000
app = FastAPI()
Session = async_sessionmaker(engine, expire_on_commit=False)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]
    amount: Mapped[int]
    receipt_sent_at: Mapped[datetime | None]


class NewOrder(BaseModel):
    item: str
    amount: PositiveInt


@app.post("/orders", status_code=201)
async def place(new: NewOrder) -> dict[str, object]:
    async with Session() as session, session.begin():
        order = Order(item=new.item, amount=new.amount)
        session.add(order)
        await session.flush()  # the order gets its id
        handle = await send_receipt.using(connection=session).enqueue(order.id)
        if new.amount > LIMIT:
            # The exception rolls back order and task together: no receipt is sent for an order that does not exist.
            raise HTTPException(402, "the card was declined")
    return {"order": order.id, "task": str(handle.id)}


@app.get("/orders/{order_id}")
async def look(order_id: int) -> dict[str, object]:
    async with Session() as session:
        order = await session.get(Order, order_id)
    if order is None:
        raise HTTPException(404, "there is no such order")
    return {"order": order.id, "item": order.item, "receipt_sent": order.receipt_sent_at is not None}
