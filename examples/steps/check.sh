# Every order has three fields, and an amount that is a number.
awk -F, '
    NF != 3 || $3 !~ /^[0-9]+$/ { print "check: order " NR " is wrong: " $0 > "/dev/stderr"; wrong = 1 }
    END { exit wrong }
' build/orders.csv
