// IEEE half precision, as the compiler has it. Apart from dtype.h because clang before 15 lacks it
// on x86-64, and the fuzzers are built with clang 14.
#pragma once

namespace skein::engine {

using F16 = _Float16;

}  // namespace skein::engine
