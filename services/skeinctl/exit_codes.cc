#include "services/skeinctl/exit_codes.h"

#include "absl/strings/str_cat.h"

namespace skein::services {

std::string ExitCodesHelp() {
  std::string text;
  for (const ExitCodeMeaning& one : kExitCodes) {
    absl::StrAppend(&text, text.empty() ? "Exit codes: " : ", ", one.code, " ", one.brief);
  }
  return text + ".";
}

int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kDone;
    case absl::StatusCode::kInvalidArgument:
      return kUsage;
    case absl::StatusCode::kNotFound:
      return kNotFound;
    case absl::StatusCode::kDeadlineExceeded:
      return kNotInTime;
    default:
      return kFailed;
  }
}

}  // namespace skein::services
