// TesterOutput: what isolationtester prints when it plays a spec, read as expectations.
//
// Its output says less than the lab sees: it names no blockers and no counts of changed rows, and prints NULL and the
// empty text alike. What it does not say is not expected.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lab/expectation.h"
#include "lab/import.h"

namespace hierlock::lab {

// For each order its steps' expectations. Sessions are named as in the spec. Throws Error(invalid_argument):
// `file:line: ` and what was expected there.
std::vector<std::vector<Expectation>> read_tester_output(std::string_view text, const std::string& file,
                                                         const Spec& spec,
                                                         const std::vector<Spec::Permutation>& orders);

}  // namespace hierlock::lab
