"""The part of the trace that runs code: these modules import torch when they are imported, so nothing else imports them
at its top."""
