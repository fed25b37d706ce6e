// A rank of a group in a process of its own (group_rank.cc), for tests.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

namespace skein::engine {

class GroupProcess {
 public:
  // `tls` as UcxOptions::tls.
  GroupProcess(const std::string& model_dir, const std::string& tls);
  ~GroupProcess();  // kills it
  GroupProcess(const GroupProcess&) = delete;
  GroupProcess& operator=(const GroupProcess&) = delete;

  const std::string& address() const { return address_; }

  // Commands of group_rank.cc; their answers come in order.
  void Tell(const std::string& line);
  // "gone" when the process has died.
  std::string Hear();

 private:
  pid_t pid_ = -1;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
  std::string address_;
};

}  // namespace skein::engine
