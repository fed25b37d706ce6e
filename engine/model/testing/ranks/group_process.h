// A rank of a group in a process of its own (group_rank.cc), for tests.
#pragma once

#include <string>

#include "engine/testing/line_process.h"

namespace skein::engine {

class GroupProcess {
 public:
  // `tls` as UcxOptions::tls.
  GroupProcess(const std::string& model_dir, const std::string& tls)
      : process_({"engine/model/testing/ranks/group_rank", model_dir, tls}), address_(Hear()) {}

  const std::string& address() const { return address_; }

  // Commands of group_rank.cc; their answers come in order.
  void Tell(const std::string& line) { process_.Tell(line); }
  // "gone" when the process has died.
  std::string Hear() { return process_.Hear().value_or("gone"); }

 private:
  LineProcess process_;
  const std::string address_;
};

}  // namespace skein::engine
