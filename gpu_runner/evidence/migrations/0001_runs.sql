-- A run is one attempt at the cases of one job. Rows are only ever added; retention removes whole runs.
CREATE TABLE runs (
    run INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL,          -- digest of the key over the static closure
    whole_key TEXT NOT NULL,    -- digest of the key over the whole tree
    record TEXT NOT NULL,       -- both keys and the target in clear, JSON
    planned TEXT NOT NULL,      -- case ids that the run must answer, JSON
    started_at REAL NOT NULL
);

CREATE TABLE verdicts (
    run INTEGER NOT NULL REFERENCES runs (run) ON DELETE CASCADE,
    case_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    verdict TEXT NOT NULL,      -- JSON
    recorded_at REAL NOT NULL,
    PRIMARY KEY (run, case_id)
) WITHOUT ROWID;

-- Written last, once every planned case has a verdict. Without it a run establishes nothing.
CREATE TABLE completions (
    run INTEGER PRIMARY KEY REFERENCES runs (run) ON DELETE CASCADE,
    key TEXT NOT NULL,          -- the digest that the verdicts count for: one of the two of the run
    facts TEXT NOT NULL,        -- JSON
    seconds REAL NOT NULL,
    recorded_at REAL NOT NULL
);

CREATE INDEX runs_by_key ON runs (key, run);
CREATE INDEX completions_by_key ON completions (key, run);

CREATE TRIGGER runs_are_final BEFORE UPDATE ON runs
BEGIN SELECT RAISE(ABORT, 'evidence is append-only'); END;
CREATE TRIGGER verdicts_are_final BEFORE UPDATE ON verdicts
BEGIN SELECT RAISE(ABORT, 'evidence is append-only'); END;
CREATE TRIGGER completions_are_final BEFORE UPDATE ON completions
BEGIN SELECT RAISE(ABORT, 'evidence is append-only'); END;
