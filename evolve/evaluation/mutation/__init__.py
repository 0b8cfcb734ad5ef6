"""The mutation audit: how many small mistakes in a correct kernel the judge would notice."""
