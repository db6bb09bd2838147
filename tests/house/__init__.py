"""The rules of the house: one test per rule, and for each rule a piece of code that breaks it."""
