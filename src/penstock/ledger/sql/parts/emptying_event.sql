-- emptying_event.sql: the event with which load l emptied or replaced the table of its row t of targets; null if it did not
CASE
    WHEN t.kind = 'replacement' AND l.state = 'complete' THEN l.event
    WHEN t.truncated_at IS NOT NULL THEN t.truncation_event
END
