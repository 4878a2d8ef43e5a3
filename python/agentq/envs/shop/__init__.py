"""`shop`, after WebShop: search a catalogue, compare near-identical products, choose options, buy."""
