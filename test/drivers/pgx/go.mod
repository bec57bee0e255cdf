module pg_herald/drivers/pgx

go 1.25.0

require (
	github.com/jackc/pgx/v5 v5.13.0
	pg-herald.invalid/pg_herald/clients/go v0.0.0
)

require (
	github.com/jackc/pgpassfile v1.0.0 // indirect
	pg-herald.invalid/pg_herald/clients/go v0.0.0-20240606120523-5a60cdf6a761 // indirect
	golang.org/x/text v0.41.0 // indirect
)

// For the example. The path is that of the copy in build/.
replace pg-herald.invalid/pg_herald/clients/go => ./clients/go
