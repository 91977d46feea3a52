"""Every sentence that tilesim prints, each looked at once."""
