-- What try-xact.sql or wait-xact.sql left behind in this transaction; nothing where there is none.
SELECT coalesce(current_setting('holdfast.advisory', true), '') AS mark
