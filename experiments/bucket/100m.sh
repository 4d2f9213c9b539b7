#!/bin/bash
# Plans and schedules 100 million lengths as a user would, from a text file: 45 s to write
# that, in a temporary folder of 1.4 GB, and a few more.
#
#	go build -o /tmp/evenkeel ./cmd/evenkeel && experiments/bucket/100m.sh /tmp/evenkeel
set -eu
evenkeel=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
cd "$folder"
cat > step.sh <<'END'
if [ $(($1 * $2)) -gt 65536 ]; then echo "out of memory" >&2; exit 1; fi
awk "BEGIN{print \"{\\\"seconds\\\":\" 0.08+4e-5*128*int(($1*$2+127)/128) \",\\\"peak_bytes\\\":\" 1000*$1*$2 \"}\"}"
END
awk 'BEGIN{srand(1); for(i=0;i<1e8;i++){v=400*exp(.8*sqrt(-2*log(1-rand()))*cos(6.283185*rand())); print int(v<1?1:v>4096?4096:v)}}' > lengths.txt
head -n 1000000 lengths.txt > some.txt
"$evenkeel" bucket profile --lengths some.txt --out table.csv -- sh step.sh > profile.txt
cat lengths.txt > /dev/null # into the page cache
now() { date +%s%N; }
begun=$(now)
"$evenkeel" bucket plan --lengths lengths.txt --table table.csv --ranks 8 --out plan.json --json > plan.txt
planned=$(now)
# The largest resident memory is read from /proc once the first step is there and at the end.
"$evenkeel" bucket schedule --plan plan.json --lengths lengths.txt > >({ read -r _; read -r _; now > first; wc -c > bytes; }) &
pid=$!
while [ -e /proc/$pid/status ]; do grep VmHWM /proc/$pid/status > memory.now && mv memory.now memory || true; sleep .02; done 2> /dev/null
wait $pid
done=$(now)
ms() { echo $((($2 - $1) / 1000000)) ms; }
echo "plan $(ms "$begun" "$planned"), first step $(ms "$planned" "$(cat first)"), whole schedule $(ms "$planned" "$done"), $(awk '{print int($2*1024/1e6)}' memory) MB"
