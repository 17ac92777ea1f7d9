-- The mark that try-xact.sql or wait-xact.sql left in this transaction; an empty text if there is none.
SELECT coalesce(current_setting('holdfast.advisory', true), '') AS mark
