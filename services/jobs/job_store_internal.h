// Shared by the files of JobStore.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "services/jobs/job_store.h"

namespace skein::services {

// A check of an input that is under way.
struct JobStore::Check {
  InputCheck check;
  std::unique_ptr<FileReader> file;
  uint64_t at = 0;  // what is read next
};

// The output of a job that is being written.
struct JobStore::Output {
  Job job;
  int64_t expires_after_s = 0;  // 0: never
  std::unique_ptr<NewFile> answers;
  std::unique_ptr<NewFile> errors;
  uint64_t last_line = 0;  // that was written, or left out
};

// Whether a file or a job is there for `owner`.
template <class Thing>
bool Owns(const JobStore::Owner& owner, const Thing& thing) {
  return !owner.has_value() || *owner == thing.owner();
}

// NOT_FOUND, by name.
absl::Status NoSuch(const char* what, const std::string& id);

}  // namespace skein::services
