// Expands the template of an instance's command line: {i} is the instance's number, {7200+i} and
// {7600+2*i} are sums, {j} counts within the instances of one program. {{ and }} mean { and }.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::services {

struct InstanceNumbers {
  int64_t i = 0;  // across all programs
  int64_t j = 0;  // within the program
};

// INVALID_ARGUMENT names the argument and the bad expression.
absl::StatusOr<std::string> Expand(const std::string& argument, InstanceNumbers numbers);

// The value of `flag` ("admin-port") in a command, as "--flag value" or "--flag=value"; the last
// one if repeated; "" if absent.
std::string FlagIn(const std::vector<std::string>& command, const std::string& flag);

}  // namespace skein::services
