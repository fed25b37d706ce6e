// A program that runs beside a test in a process of its own and is asked line by line: its input
// takes commands, its output has the answers.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace skein::engine {

// One thread.
class LineProcess {
 public:
  // The words of its command line; the first one is its path, which is in the test's data.
  explicit LineProcess(std::vector<std::string> words);
  ~LineProcess();  // kills it
  LineProcess(const LineProcess&) = delete;
  LineProcess& operator=(const LineProcess&) = delete;

  void Tell(const std::string& line);  // to one that has ended: lost
  // The next line, which it waits for; nullopt: the process has ended.
  std::optional<std::string> Hear();

  // It has ended or stopped itself since it was started or continued.
  bool Struck();
  void Continue();

 private:
  pid_t pid_ = -1;
  bool struck_ = false, ended_ = false;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
};

}  // namespace skein::engine
