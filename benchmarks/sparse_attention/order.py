"""How many blocks the stages of the pipeline are ahead of the weighted sums."""

FETCH, CHECK, GATHER, COLUMNS, SCORES = 7, 6, 5, 3, 1
