"""The scenario of ../README.md with Django and django-pgpubsub: models that write, and `manage.py listen`."""

import os
import subprocess
import sys
import threading
from importlib.metadata import version

os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
os.environ["PGPUBSUB_USE_PSYCOPG_V3"] = "True"

import django  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import DatabaseError, connection, transaction  # noqa: E402

from scenario.scenario import OTHERS, Listener  # noqa: E402

LISTENS = "Listening for notifications"  # a line of its log
START_S = 60  # also for runs in which it receives nothing, whose deadline is shorter


class Pubsub(Listener):
    """The listener is a separate process, which starts another one when its connection breaks."""

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

    def listen(self, listener: subprocess.Popen, listens: threading.Event) -> None:
        """Takes the texts received by the process and its successors from their log."""
        for line in listener.stdout:
            word, _, text = line.rstrip("\n").partition(" ")
            if word == "heard":
                self.heard(text)
            elif LISTENS in line:
                listens.set()

    def main(self) -> None:
        """Runs all steps."""
        django.setup()
        call_command("migrate", run_syncdb=True, verbosity=0)
        call_command("pgtrigger", "install", verbosity=0)
        with subprocess.Popen([sys.executable, "manage.py", "listen"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True) as listener:
            listens = threading.Event()
            threading.Thread(target=self.listen, args=(listener, listens), daemon=True).start()
            self.check(listens.wait(START_S), "the process does not listen")
            self.run()


if __name__ == "__main__":
    Pubsub().main()
