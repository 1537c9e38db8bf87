"""One kernel on one device: HBM -> L2 and buffers -> cores -> HBM, with the start-up that grows with cores."""
