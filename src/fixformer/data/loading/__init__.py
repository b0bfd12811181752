"""From a list of samples to batches."""

from fixformer.data.loading.sources import index_of, reader_for, train_loader, view_loader

__all__ = ["index_of", "reader_for", "train_loader", "view_loader"]
