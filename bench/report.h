// Report: the table and the JSON document.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "cases.h"
#include "statistics.h"

namespace bench {

struct Report {
  Effort effort;
  Enforce enforce = Enforce::full;
  double load = 0;  // of the machine, before the run: processes that wanted to run, averaged over a minute
  Outcome outcome;

  Verdict verdict(const Result& result) const { return judge(result.what->bar, result.ratio.median, enforce); }
  // The cases that miss what is enforced.
  std::vector<const Result*> missed() const;
  // With every bar enforced: the cases that have one and could not be measured. A bar that nobody looked at is not met.
  std::vector<const Skipped*> unjudged() const;
};

std::string table(const Report& report);
std::string json(const Report& report);
// All cases with what they measure.
std::string list();

}  // namespace bench
