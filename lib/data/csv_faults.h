// Fields of CSV files that are refused: the first one of each kind, and how many there are.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/diagnostic.h"
#include "base/text.h"

namespace meshtrain {

struct CsvFaults {
  struct Kind {
    const char* code;
    const char* help;
    std::string first = {};
    int64_t count = 0;
    std::pair<size_t, int64_t> last = {};  // column and line of the newest one
    std::string file = {};                 // which has it
  };

  Kind not_number{"E310",
                  "select columns with `features`, turn texts into ids with `categorical` and "
                  "dates into numbers "
                  "with `dates`, or read fractions with `dtype: float32`"};
  Kind not_whole{"E310",
                 "`categorical` gives the values of a column ids from 0 on; an Input without "
                 "`dtype` takes fractions"};
  Kind no_file{"E300",
               "`directory` is the folder of the files, `extension` stands behind each name"};
  Kind no_date{"E310",
               "dates are written 2024-03-01 or 2024-03-01 12:30:00, or as `date_format` says: "
               "`date_format: \"%d.%m.%Y\"`"};
  Kind missing{
      "E311",
      "`missing: mean`, in a series `missing: previous`, or a number such as `missing: 0`, "
      "fills in numbers"};
  Kind missing_text{"E311", "`mask_token: \"[MASK]\"` gives missing texts an id of their own"};
  Kind missing_token{
      "E311",
      "`mask_token: \"[MASK]\"` of a lookup, or `mask_value` of `Hashing`, stands for "
      "missing values"};
  Kind missing_label{"E311",
                     "nothing fills in labels or weights: leave such rows out of the file; in a "
                     "series `missing: previous` fills a label that is a feature, too"};
  Kind missing_group{"E311", "`group` needs a value in each row: leave such rows out of the file"};
  Kind infinite{
      "E311",
      "`missing_texts` lists such texts as the file has them; `missing: mean` replaces them"};
  Kind unknown{"E312",
               "`oov_token: \"[UNK]\"` gives unknown texts of features an id; `vocabulary` lists "
               "those of a column"};
  Kind unknown_label{"E312", "`vocabulary` gives the texts of a column, else the training data do"};

  // Throws ConfigError with all kinds of which there is one.
  void report() const {
    Diagnostics problems;
    for (const Kind* kind :
         {&not_number, &not_whole, &no_file, &no_date, &missing, &missing_text, &missing_token,
          &missing_label, &missing_group, &infinite, &unknown, &unknown_label}) {
      if (kind->count > 0) {
        const std::string more = kind->count > 1 ? fmt::format(" (and {} more such fields)",
                                                               format_thousands(kind->count - 1))
                                                 : "";
        problems.error(kind->code, {}, kind->first + more).help(kind->help);
      }
    }
    problems.throw_if_errors();
  }
};

}  // namespace meshtrain
