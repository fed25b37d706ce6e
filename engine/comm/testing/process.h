// A rank in a process of its own, for tests that kill it: the program `rank`, asked line by line.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <span>
#include <string>

namespace skein::engine {

class RankProcess {
 public:
  // `tls` as UcxOptions::tls.
  explicit RankProcess(const std::string& tls);
  ~RankProcess();  // kills it
  RankProcess(const RankProcess&) = delete;

  const std::string& address() const { return address_; }

  // Makes its end of a group; "OK" or the status.
  std::string Join(uint64_t id, std::span<const std::string> addresses, int rank);

  // Starts `rounds` of all collectives on the last group; 0: without end.
  void Work(int rounds, int deadline_ms);
  void AwaitFirstRound();
  // How the work ended: a status code's name.
  std::string AwaitEnd();

  void Signal(int number);

 private:
  void Tell(const std::string& line);
  std::string Hear();

  pid_t pid_ = -1;
  FILE* stream_ = nullptr;
  std::string address_;
};

}  // namespace skein::engine
