"""An app that is notified of new orders."""
