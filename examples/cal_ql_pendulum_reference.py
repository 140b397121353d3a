"""Cal-QL on the task of its packaged preset, from first step to evaluated policy."""

from _reference import main

if __name__ == "__main__":
    main("cal_ql/pendulum")
