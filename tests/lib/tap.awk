# SPDX-License-Identifier: Apache-2.0
# Counts the test points of one TAP file: prints "PASSED FAILED SKIPPED COMPLAINT".
# -v status=EXIT of the program, -v limit=SECONDS it had.

/^1\.\.[0-9]+/ {
  plan = substr($1, 4) + 0
  planned = 1
  if (plan == 0) skipped++
}
/^Bail out!/ { complaint = $0 }
/^not ok/ {
  points++
  if ($0 ~ /# *[Ss][Kk][Ii][Pp]/) skipped++
  else failed++
}
/^ok/ {
  points++
  if ($0 ~ /# *[Ss][Kk][Ii][Pp]/) skipped++
  else passed++
}
END {
  if (complaint != "") ;
  else if (status == 124 || status == 137)
    complaint = "it did not end within " limit " s"
  else if (!planned)
    complaint = "it printed no plan (exit status " status ")"
  else if (points != plan)
    complaint = "it planned " plan " test points and printed " points + 0 " (exit status " status ")"
  else if (status != 0 && !failed)
    complaint = "all its test points passed, but its exit status is " status
  if (complaint != "") failed++
  print passed + 0, failed + 0, skipped + 0, complaint
}
