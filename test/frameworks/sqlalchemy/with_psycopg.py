"""The scenario of ../README.md with SQLAlchemy: a session that writes, and notifies() of the psycopg connection."""

import threading
import time

import sqlalchemy
from orders import CHANNEL, Base, Order
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

import psycopg
from scenario.scenario import OTHERS, RETRY_S, Listener


class WithPsycopg(Listener):
    """One engine for everything."""

    def __init__(self):
        super().__init__("sqlalchemy-psycopg", sqlalchemy.__version__)
        self.engine = create_engine("postgresql+psycopg://", pool_pre_ping=True, max_overflow=10)
        self.listening = threading.Event()

    def send(self, texts: list[str], commit: bool = True) -> None:
        with Session(self.engine) as session:
            for text_ in texts:
                session.add(Order(text=text_))
                session.flush()
            if commit:
                session.commit()
            else:
                session.rollback()

    def terminate(self) -> None:
        with self.engine.connect() as connection:
            connection.execute(text(OTHERS))

    def listen(self) -> None:
        """Listens, and starts again when the connection breaks."""
        while True:
            try:
                with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                    connection.execute(text(f"LISTEN {CHANNEL}"))
                    self.listening.set()
                    for notify in connection.connection.driver_connection.notifies():
                        self.heard(notify.payload)
            except (DBAPIError, psycopg.OperationalError):
                time.sleep(RETRY_S)

    def main(self) -> None:
        """Runs all steps."""
        Base.metadata.create_all(self.engine)
        threading.Thread(target=self.listen, daemon=True).start()
        self.listening.wait()
        self.run()


if __name__ == "__main__":
    WithPsycopg().main()
