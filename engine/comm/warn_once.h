// Warnings that are said once. Internal to engine/comm.
#pragma once

#include <functional>
#include <string>

namespace skein::engine {

using Warn = std::function<void(const std::string&)>;

// Passes each text to `warn` once. Any thread. Null: null.
Warn EachOnce(Warn warn);

}  // namespace skein::engine
