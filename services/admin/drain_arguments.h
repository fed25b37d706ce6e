// The query of POST /drain.
#pragma once

#include <string>
#include <string_view>
#include <variant>

namespace skein::services {

struct DrainArguments {
  double wait_s = 0;
  bool force = false;
};

struct BadArgument {
  std::string name;
  std::string what;  // "wait_s: 'x' is not a number from 0 to 3600"
};

std::variant<DrainArguments, BadArgument> ParseDrainArguments(std::string_view query);

}  // namespace skein::services
