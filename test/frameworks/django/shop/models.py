"""What is stored."""

from django.db import models


class Order(models.Model):
    """Its text is heard when it is inserted."""

    text = models.TextField()
