"""`booking`, after OpenTable: find a restaurant, a date, a time, give the guest's details, complete the reservation."""
