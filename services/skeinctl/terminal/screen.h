// The terminal as a full screen that is drawn over and over, without flicker, and read key by key.
// Plain ANSI. At most one at a time.
#pragma once

#include <termios.h>

#include <chrono>
#include <string>

namespace skein::services {

// Standard output is a terminal that understands ANSI.
bool IsTerminal();
// And colours are wanted: NO_COLOR is not set.
bool MayColor();

// SIGINT and SIGTERM from here on end waits instead of the process.
void CatchStopSignals();
bool StopSignalled();
// Until `time` has passed or a stop signal came.
void WaitUnlessStopped(std::chrono::milliseconds time);

class Screen {
 public:
  Screen();
  ~Screen();  // leaves the terminal as it was
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  int columns() const;  // of the terminal as it is now

  // Shows as many lines of `text` as there is room for, each cut at the right edge.
  void Draw(const std::string& text);
  // A key, or 0 when `time` has passed or a stop signal came.
  char AwaitKey(std::chrono::milliseconds time);

 private:
  termios before_{};
  bool raw_ = false;
};

// Pure: what Draw writes for a screen of this size.
std::string Frame(const std::string& text, int rows, int columns);

}  // namespace skein::services
