\set project random(1, :projects)
\set account random(32, 63)
UPDATE grants SET active = NOT active WHERE project = :project AND account = :account;
