// The terminal as a full screen, redrawn without flicker and read key by key. Plain ANSI. At most
// one at a time.
#pragma once

#include <termios.h>

#include <chrono>
#include <string>

namespace skein::services {

// Whether standard output is a terminal that understands ANSI.
bool IsTerminal();
// The same, and NO_COLOR is not set.
bool MayColor();

// From here on SIGINT, SIGTERM and SIGHUP (the terminal has gone) end waits instead of the process.
// SIGHUP stays ignored under nohup.
void CatchStopSignals();
bool StopSignalled();
// Waits until `time` has passed or a stop signal came.
void WaitUnlessStopped(std::chrono::milliseconds time);

class Screen {
 public:
  Screen();
  ~Screen();  // restores the terminal
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  int columns() const;  // current width

  // Shows the lines of `text` that fit, each cut at the right edge.
  void Draw(const std::string& text);
  // Waits for a key; 0: `time` has passed or a stop signal came.
  char AwaitKey(std::chrono::milliseconds time);

 private:
  termios before_{};
  bool raw_ = false;
};

// Pure: what Draw writes for a screen of this size.
std::string Frame(const std::string& text, int rows, int columns);

}  // namespace skein::services
