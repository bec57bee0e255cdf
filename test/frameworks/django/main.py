"""The scenario of ../README.md with Django and django-pgpubsub: models that write, and `manage.py listen`."""

import os
import subprocess
import sys
import threading
import time
from importlib.metadata import version

os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
os.environ["PGPUBSUB_USE_PSYCOPG_V3"] = "True"

import django  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import DatabaseError, connection, transaction  # noqa: E402

from scenario.scenario import OTHERS, RETRY_S, Listener  # noqa: E402

LISTENS = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' OR query = 'COMMIT'"


class Pubsub(Listener):
    """The listener is a process of its own, which starts another one when its connection breaks."""

    def __init__(self):
        super().__init__("django-pgpubsub", version("django-pgpubsub"))

    def send(self, texts: list[str], commit: bool = True) -> None:
        from shop.models import Order  # pylint: disable=import-outside-toplevel
        try:
            with transaction.atomic():
                for text in texts:
                    Order.objects.create(text=text)
                transaction.set_rollback(not commit)
        except DatabaseError:
            connection.close()
            raise

    def terminate(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(OTHERS)

    def listen(self, listener: subprocess.Popen) -> None:
        """Takes what the process and its successors have heard."""
        for line in listener.stdout:
            word, _, text = line.rstrip("\n").partition(" ")
            if word == "heard":
                self.heard(text)

    def main(self) -> None:
        """All steps."""
        django.setup()
        call_command("migrate", run_syncdb=True, verbosity=0)
        call_command("pgtrigger", "install", verbosity=0)
        with subprocess.Popen([sys.executable, "manage.py", "listen"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              text=True) as listener:
            threading.Thread(target=self.listen, args=(listener,), daemon=True).start()
            with connection.cursor() as cursor:
                while not cursor.execute(LISTENS).fetchone()[0]:
                    time.sleep(RETRY_S)
            time.sleep(1)
            self.run()


if __name__ == "__main__":
    Pubsub().main()
