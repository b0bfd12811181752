"""Data sets as lists of samples, whatever their layout."""

from fixformer.data.listing.folds import folds
from fixformer.data.listing.index import UNLABELLED, Index, ListingError, Sample
from fixformer.data.listing.load import load_index

__all__ = ["UNLABELLED", "Index", "ListingError", "Sample", "folds", "load_index"]
