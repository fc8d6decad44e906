// Memory that is refused, once, to a thread of the test's choice.
#pragma once

namespace hierlock::mysql_tests {

// The how-many-eth allocation of this thread from now on is refused; 0: none is. When it was, it is 0 again.
extern thread_local long refused_allocation;

}  // namespace hierlock::mysql_tests
