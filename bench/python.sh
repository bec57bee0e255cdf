# Sourced by bench/run and bench/report.

# Prints the first python3 that has the modules for the benchmarks. Debian's packages are for
# /usr/bin/python3, which need not be the first on PATH.
find_python() {
	local program
	for program in python3 /usr/bin/python3; do
		if "$program" -c 'import matplotlib, rich' 2>/dev/null; then
			echo "$program"
			return
		fi
	done
	echo "no python3 has the modules matplotlib and rich; scripts/install-deps bench installs them" >&2
	return 1
}
