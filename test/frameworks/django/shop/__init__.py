"""An app whose orders are heard."""
