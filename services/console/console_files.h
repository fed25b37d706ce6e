// The console's pages, scripts and styles, as the build put them into the binary
// (embed_files.py).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace skein::services {

struct ConsoleFile {
  std::string_view name;  // "main.mjs"
  std::string_view content_type;
  std::string_view content;
};

// By name.
const std::vector<ConsoleFile>& ConsoleFiles();

}  // namespace skein::services
