"""The papers' bounds as plain functions of plain numbers, one module a paper. They know nothing of the ledger."""
