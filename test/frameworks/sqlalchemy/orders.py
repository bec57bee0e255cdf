"""The table whose rows notify: SQLAlchemy's models and DDL, with both drivers."""

from sqlalchemy import DDL, Text, event
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

CHANNEL = "orders"


class Base(DeclarativeBase):
    """All tables."""


class Order(Base):
    """A row; its text is notified when it is inserted."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str] = mapped_column(Text)


for statement in (
        "CREATE FUNCTION order_notify() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$BEGIN PERFORM pg_notify('{CHANNEL}', NEW.text); RETURN NULL; END$$",
        "CREATE TRIGGER order_notify AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION order_notify()"):
    event.listen(Order.__table__, "after_create", DDL(statement))
