// Whole files as text.
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace skein::services {

// NOT_FOUND names a path that cannot be read, for example a folder.
inline absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in.is_open() || (in.peek(), in.bad())) {  // a folder opens, but cannot be read
    return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  }
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

// Replaces the file. UNAVAILABLE names a path that cannot be written.
inline absl::Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file.fail()) return absl::UnavailableError(absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

}  // namespace skein::services
